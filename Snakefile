# Measures servers x workloads x concurrency and compiles the report. Targets:
#
#   report/ddtree.pdf                                      the report, with everything that it needs (default)
#   plan                                                   prints what would run and how long it takes; runs nothing
#   results/<plan>/cells/<server>/<workload>/c<N>.json     one cell
#
# Another plan:              snakemake --configfile config/smoke.yaml
# Failed cells once again:   snakemake --config retry_failed=1
import sys

from snakemake.utils import min_version

from ddtree.plan import workflow as ddtree_workflow
from ddtree.plan.files import PlanError
from ddtree.plan.keys import cells
from ddtree.plan.layout import Layout
from ddtree.plan.specs import used_models

min_version("9.0")

try:
    PLAN, OPTIONS = ddtree_workflow.configure(
        workflow.config_settings.configfiles, workflow.config_settings.config
    )
except PlanError as error:
    sys.exit(str(error))

AT = Layout(PLAN.plan)
RESULTS = str(AT.results)
SERVERS = list(PLAN.servers)
MODELS = used_models(PLAN)
MANIFESTS = [str(AT.manifest(server)) for server in SERVERS]
CODING = [
    str(AT.results / "quality" / "coding" / f"{server}.json")
    for server in SERVERS
    if any(load.source == "human_eval" for load in PLAN.workloads.values())
]

if workflow.is_main_process:
    ddtree_workflow.write_specs(PLAN, AT, OPTIONS.retry_failed)


wildcard_constraints:
    engine=ddtree_workflow.one_of({server.env for server in PLAN.servers.values()}),
    model=ddtree_workflow.one_of(MODELS),
    server=ddtree_workflow.one_of(SERVERS),
    workload=ddtree_workflow.one_of(PLAN.workloads),
    n=r"\d+",


rule all:
    default_target: True
    input:
        "report/ddtree.pdf",


rule plan:
    input:
        AT.plan_spec,
    localrule: True
    params:
        retry_failed=OPTIONS.retry_failed,
    script:
        "scripts/plan.py"


include: "rules/envs.smk"
include: "rules/models.smk"
include: "rules/prompts.smk"
include: "rules/sessions.smk"
include: "rules/quality.smk"
include: "rules/tables.smk"
include: "rules/report.smk"


onstart:
    ddtree_workflow.hold(AT)


onsuccess:
    print(ddtree_workflow.farewell(PLAN, AT), end="")
