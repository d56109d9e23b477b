"""The contents of `environments/`: in a checkout the folder beside the package, in a wheel this one."""

from sao_bench._content import content_path

__path__ = content_path(__file__)
