#!/usr/bin/env bash
# A Slurm of one node with eight pretended GPUs, as root, without systemd, cgroups or accounting (Debian or Ubuntu):
#   one_node.sh install    packages
#   one_node.sh start DIR  state and logs below DIR; writes /etc/slurm, which job steps insist on
#   one_node.sh stop DIR
set -euo pipefail
say() { echo "one_node.sh: $*" >&2; }
command=${1:-}; dir=${2:-}

install() {
  command -v slurmctld slurmd munged >/dev/null && return
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm slurm-client munge >/dev/null
}

start() {
  host=$(hostname -s)
  mkdir -p "$dir"/{state,spool,dev} /etc/slurm /run/munge
  # A GPU without a file is dropped and a regular file gives no CUDA_VISIBLE_DEVICES; links to /dev/null do.
  for i in 0 1 2 3 4 5 6 7; do ln -sfn /dev/null "$dir/dev/nvidia$i"; done
  echo "Name=gpu File=$dir/dev/nvidia[0-7] Flags=nvidia_gpu_env" > /etc/slurm/gres.conf
  cat > /etc/slurm/slurm.conf <<CONF
ClusterName=onenode
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=36817
SlurmdPort=36818
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
MinJobAge=300
KillWait=5
SlurmdTimeout=10
OverTimeLimit=0
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=4000 Gres=gpu:8 State=UNKNOWN
PartitionName=batch Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  [ -s /etc/munge/munge.key ] || head -c 1024 /dev/urandom > /etc/munge/munge.key
  chown munge:munge /run/munge /etc/munge/munge.key
  chmod 400 /etc/munge/munge.key
  runuser -u munge -- /usr/sbin/munged --pid-file=/run/munge/munged.pid 2>"$dir/munged.log" ||
    munge -n >/dev/null  # it runs already
  slurmctld
  slurmd
  for _ in $(seq 100); do
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && return
    sleep 0.2
  done
  say "the node does not become idle; see $dir/slurmctld.log and $dir/slurmd.log"
  return 1
}

stop() {
  for daemon in slurmd slurmctld; do
    [ -s "$dir/$daemon.pid" ] || continue
    pid=$(cat "$dir/$daemon.pid")
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  done
}

case $command in
  install) install ;;
  start | stop) [ -n "$dir" ] || { say "usage: $0 $command DIR"; exit 2; }; "$command" ;;
  *) say "usage: $0 install | start DIR | stop DIR"; exit 2 ;;
esac
