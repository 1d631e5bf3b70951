# A session starts one server and measures all of its missing cells. It declares only its manifest: Snakemake deletes
# the outputs of failed jobs, and a finished cell must outlive whatever happens afterwards.
rule session:
    input:
        lambda wildcards: inputs_of(wildcards.server, PLAN.workloads),
        spec=f"{RESULTS}/spec/sessions/{{server}}.json",
    output:
        f"{RESULTS}/sessions/{{server}}.json",
    log:
        f"logs/sessions/{PLAN.plan}/{{server}}.log",
    priority: priority
    threads: session_threads
    resources:
        gpu=gpus,
        slurm_extra=slurm_extra,
    params:
        run=SESSION,
    message:
        "Session {wildcards.server}"
    shell:
        "exec {params.run} --spec {input.spec} --manifest {output} --log {log} --owner $PPID"


rule cell:
    input:
        lambda wildcards: inputs_of(wildcards.server, [wildcards.workload]),
        f"{RESULTS}/spec/cells/{{server}}/{{workload}}/c{{n}}.json",
        spec=ancient(f"{RESULTS}/spec/sessions/{{server}}.json"),
    output:
        f"{RESULTS}/cells/{{server}}/{{workload}}/c{{n}}.json",
    log:
        f"logs/cells/{PLAN.plan}/{{server}}.{{workload}}.c{{n}}.log",
    priority: priority
    threads: session_threads
    resources:
        gpu=gpus,
        slurm_extra=slurm_extra,
    params:
        run=SESSION,
    message:
        "Cell {wildcards.server} {wildcards.workload} c{wildcards.n}"
    shell:
        "exec {params.run} --spec {input.spec} --cell {wildcards.workload}/c{wildcards.n} --log {log} --owner $PPID"
