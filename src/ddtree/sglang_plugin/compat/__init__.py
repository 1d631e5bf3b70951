"""One module per supported SGLang release. The surfaces that the plugin uses move even between patch releases."""

RELEASES = {"0.5.16": "ddtree.sglang_plugin.compat.v0516"}
