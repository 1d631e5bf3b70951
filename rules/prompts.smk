# A workload's prompts under one model's tokenizer.
rule prompts:
    input:
        own_text,
        spec=f"{RESULTS}/spec/prompts/{{model}}/{{workload}}.json",
        model="models/{model}/model.json",
    output:
        f"{RESULTS}/prompts/{{model}}/{{workload}}.json",
    log:
        f"logs/prompts/{PLAN.plan}/{{model}}.{{workload}}.log",
    message:
        "Building the prompts of {wildcards.workload} for {wildcards.model}"
    script:
        "../scripts/prompts.py"
