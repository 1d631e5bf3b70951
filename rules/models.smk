# A model's checkpoints, ready to load, with their hashes.
rule model:
    input:
        spec="models/{model}/spec.json",
    output:
        "models/{model}/model.json",
    log:
        "logs/model/{model}.log",
    message:
        "Preparing model {wildcards.model}"
    script:
        "../scripts/model.py"
