# A session starts one server and measures all of its missing cells. It declares only its manifest: Snakemake deletes
# the outputs of failed jobs, and a finished cell must outlive whatever happens afterwards.
def session_inputs(wildcards, workloads=tuple(PLAN.workloads)):
    server = PLAN.servers[wildcards.server]
    prompts = [AT.prompts(server.model, workload) for workload in workloads]
    env = [] if server.python else [AT.env(server.env)]
    return [*env, AT.model(server.model), *prompts]


# Without a GPU a measurement has all cores, so that nothing runs beside it.
def session_threads(wildcards):
    return 1 if PLAN.servers[wildcards.server].gpus else workflow.cores


rule session:
    input:
        session_inputs,
        spec=f"{RESULTS}/spec/sessions/{{server}}.json",
    output:
        f"{RESULTS}/sessions/{{server}}.json",
    log:
        f"logs/sessions/{PLAN.plan}/{{server}}.log",
    threads: session_threads
    resources:
        gpu=lambda wildcards: PLAN.servers[wildcards.server].gpus,
    params:
        run=f"{sys.executable} {workflow.basedir}/scripts/session.py",
    message:
        "Session {wildcards.server}"
    shell:
        "exec {params.run} --spec {input.spec} --manifest {output} --log {log} --owner $PPID"


rule cell:
    input:
        lambda wildcards: session_inputs(wildcards, [wildcards.workload]),
        f"{RESULTS}/spec/cells/{{server}}/{{workload}}/c{{n}}.json",
        spec=ancient(f"{RESULTS}/spec/sessions/{{server}}.json"),
    output:
        f"{RESULTS}/cells/{{server}}/{{workload}}/c{{n}}.json",
    log:
        f"logs/cells/{PLAN.plan}/{{server}}.{{workload}}.c{{n}}.log",
    threads: session_threads
    resources:
        gpu=lambda wildcards: PLAN.servers[wildcards.server].gpus,
    params:
        run=f"{sys.executable} {workflow.basedir}/scripts/session.py",
    message:
        "Cell {wildcards.server} {wildcards.workload} c{wildcards.n}"
    shell:
        "exec {params.run} --spec {input.spec} --cell {wildcards.workload}/c{wildcards.n} --log {log} --owner $PPID"
