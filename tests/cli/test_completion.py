"""`graft completion`: the scripts, and what a shell is told when it asks."""

import json
import os
import shutil
import subprocess
import sys

import pytest

ASK = [sys.executable, "-c", "from graft.cli.main import main; main()"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_that_its_shell_can_read(graft, shell):
    outcome = graft("completion", shell)
    assert outcome.code == 0
    assert f"_GRAFT_COMPLETE={shell}_complete" in outcome.out
    assert json.loads(graft("completion", shell, "--json").out) == {"shell": shell, "script": outcome.out[:-1]}
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=outcome.out, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "expected"), [("graft ver", "plain,verify"), ("graft inspect --st", "plain,--stage")]
)
def test_verbs_and_options_are_completed(words, expected):
    environment = {**os.environ, "_GRAFT_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    found = subprocess.run(ASK, env=environment, capture_output=True, text=True, check=True)
    assert expected in found.stdout.splitlines()
