# Verdicts on the answers. They wait for every session: running generated code beside a measurement would disturb it.
rule coding:
    input:
        MANIFESTS,
        code=ddtree_workflow.sources("quality"),
        plan=AT.plan_spec,
        manifest=f"{RESULTS}/sessions/{{server}}.json",
        model=lambda wildcards: AT.model(PLAN.servers[wildcards.server].model),
        prompts=lambda wildcards: prompts_of(wildcards.server, PROGRAMS),
    output:
        f"{RESULTS}/quality/coding/{{server}}.json",
    log:
        f"logs/coding/{PLAN.plan}/{{server}}.log",
    threads: 2
    params:
        allow_unisolated=OPTIONS.allow_unisolated,
    message:
        "Running the generated programs of {wildcards.server}"
    script:
        "../scripts/coding.py"


rule lossless:
    input:
        code=ddtree_workflow.sources("quality"),
        plan=AT.plan_spec,
        manifests=MANIFESTS,
    output:
        f"{RESULTS}/quality/lossless.json",
    log:
        f"logs/lossless/{PLAN.plan}.log",
    message:
        "Comparing greedy answers with those of the baseline"
    script:
        "../scripts/lossless.py"
