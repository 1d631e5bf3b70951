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


# The tiny hybrid pair, made and trained here; a plan names its two folders as paths.
rule tiny_hybrid:
    input:
        AT.env("embedded"),
    output:
        "models/tiny-hybrid/target/model.safetensors",
        "models/tiny-hybrid/drafter/model.safetensors",
    log:
        "logs/model/tiny-hybrid.log",
    threads: 2
    params:
        python=str(AT.python("embedded")),
    message:
        "Training the tiny hybrid and its drafter, which takes a few minutes"
    shell:
        "{params.python} -m ddtree.engine.train models/tiny-hybrid > {log} 2>&1"
