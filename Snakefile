# Measures servers x workloads x concurrency and compiles the report. Targets:
#
#   report/ddtree.pdf                                      the report, with everything that it needs (default)
#   plan                                                   prints what would run and how long it takes; runs nothing
#   why                                                    prints for each cell why it would run or not; runs nothing
#   results/<plan>/cells/<server>/<workload>/c<N>.json     one cell
#
# Another plan:              snakemake --configfile config/smoke.yaml   (targets, if any, come first)
# A cell that failed makes the exit status 1, once the report is there. The next run tries it again, except with
#                            snakemake --config retry_failed=0
from snakemake.utils import min_version

min_version("9.0")


include: "rules/common.smk"  # the plan
include: "rules/envs.smk"  # .envs/<engine>
include: "rules/models.smk"  # models/<model>
include: "rules/prompts.smk"  # results/<plan>/prompts
include: "rules/sessions.smk"  # results/<plan>/cells and sessions
include: "rules/quality.smk"  # results/<plan>/quality
include: "rules/tables.smk"  # results/<plan>/tables
include: "rules/report.smk"  # report


# On a cluster only sessions and generated programs become batch jobs: the rest is short, or needs the internet.
localrules:
    all,
    env,
    model,
    prompts,
    lossless,
    tables,
    figures,
    report_tex,
    report_pdf,


rule all:
    default_target: True
    input:
        "report/ddtree.pdf",


rule plan:
    input:
        AT.plan_spec,
    log:
        "logs/plan.log",
    localrule: True
    params:
        retry_failed=OPTIONS.retry_failed,
    script:
        "scripts/plan.py"


rule why:
    input:
        AT.plan_spec,
    log:
        "logs/why.log",
    localrule: True
    params:
        retry_failed=OPTIONS.retry_failed,
    script:
        "scripts/why.py"


onstart:
    ddtree_workflow.hold(AT)


# Failed cells are rows of the report, so their jobs succeed; the run as a whole did not.
onsuccess:
    if failures := ddtree_workflow.farewell(PLAN, AT):
        sys.exit(failures)


onerror:
    print(ddtree_workflow.farewell(PLAN, AT), file=sys.stderr)
