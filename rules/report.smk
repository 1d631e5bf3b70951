# From tables to the PDF. The LaTeX source stays beside it and compiles by itself.
rule figures:
    input:
        code=ddtree_workflow.sources("report"),
        plan=AT.plan_spec,
        tables=f"{RESULTS}/tables",
    output:
        directory("report/figures"),
    log:
        "logs/report/figures.log",
    message:
        "Drawing the figures"
    script:
        "../scripts/figures.py"


rule report_tex:
    input:
        code=ddtree_workflow.sources("report"),
        plan=AT.plan_spec,
        tables=f"{RESULTS}/tables",
        figures="report/figures",
    output:
        tex="report/ddtree.tex",
        macros="report/data/macros.tex",
    log:
        "logs/report/tex.log",
    message:
        "Writing the report"
    script:
        "../scripts/report_tex.py"


rule report_pdf:
    input:
        tex="report/ddtree.tex",
        macros="report/data/macros.tex",
        figures="report/figures",
    output:
        "report/ddtree.pdf",
    log:
        "logs/report/pdf.log",
    message:
        "Compiling the PDF"
    script:
        "../scripts/report_pdf.py"
