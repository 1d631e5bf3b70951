# Everything derived from the raw results. Editing the code that derives makes the tables again.
rule tables:
    input:
        code=ddtree_workflow.sources("bench", "report"),
        plan=AT.plan_spec,
        manifests=MANIFESTS,
        prompts=prompts_of(PLAN.baseline, PLAN.workloads),
        coding=CODING,
        lossless=f"{RESULTS}/quality/lossless.json",
    output:
        directory(f"{RESULTS}/tables"),
    log:
        f"logs/tables/{PLAN.plan}.log",
    message:
        "Deriving the tables"
    script:
        "../scripts/tables.py"
