# What the rules share: the plan, where its files lie, and a few input functions.
import shlex
import sys

from ddtree.plan import workflow as ddtree_workflow
from ddtree.plan.files import PlanError
from ddtree.plan.layout import Layout
from ddtree.plan.packing import priorities
from ddtree.plan.specs import used_models

try:
    PLAN, OPTIONS = ddtree_workflow.configure(
        workflow.config_settings.configfiles, workflow.config_settings.config
    )
except PlanError as error:
    sys.exit(str(error))

AT = Layout(PLAN.plan)
RESULTS = str(AT.results)
MANIFESTS = [str(AT.manifest(server)) for server in PLAN.servers]
# Workloads whose answers are programs, and the verdicts on them.
PROGRAMS = [
    name for name, load in PLAN.workloads.items() if load.source == "human_eval"
]
CODING = [
    f"{RESULTS}/quality/coding/{server}.json" for server in PLAN.servers if PROGRAMS
]
SESSION = shlex.join([sys.executable, f"{workflow.basedir}/scripts/session.py"])

# The most GPUs that sessions may hold together (--resources gpu=N); None where a batch system hands them out.
GPUS = getattr(workflow.global_resources.get("gpu"), "value", None)
PRIORITIES = {}
if workflow.is_main_process:
    seconds = ddtree_workflow.write_specs(PLAN, AT, OPTIONS.retry_failed)
    PRIORITIES = priorities(PLAN, seconds, GPUS)


wildcard_constraints:
    engine=ddtree_workflow.one_of(server.env for server in PLAN.servers.values()),
    model=ddtree_workflow.one_of(used_models(PLAN)),
    server=ddtree_workflow.one_of(PLAN.servers),
    workload=ddtree_workflow.one_of(PLAN.workloads),
    n=r"\d+",


# The file that a workload is read from, if it has one.
def own_text(wildcards):
    path = PLAN.workloads[wildcards.workload].path
    return [path] if path else []


def prompts_of(server, workloads):
    return [AT.prompts(PLAN.servers[server].model, workload) for workload in workloads]


# The environment, model and prompts that a server needs; a server with an interpreter of its own needs no environment.
def inputs_of(server, workloads):
    spec = PLAN.servers[server]
    env = [] if spec.python else [AT.env(spec.env)]
    return [*env, AT.model(spec.model), *prompts_of(server, workloads)]


# Without a GPU a measurement has all cores, so that nothing runs beside it.
def session_threads(wildcards):
    return 1 if PLAN.servers[wildcards.server].gpus else workflow.cores


# An exclusive session has all GPUs that there are to share, so that no other one waits for it with GPUs of its own.
def gpus(wildcards):
    spec = PLAN.servers[wildcards.server]
    return GPUS or spec.gpus if spec.gpus and spec.exclusive else spec.gpus


def slurm_extra(wildcards):
    return "--exclusive" if PLAN.servers[wildcards.server].exclusive else ""


# Sessions share the GPUs best in this order; on a CPU there is nothing to share.
def priority(wildcards):
    return PRIORITIES.get(wildcards.server, 0)
