"""`recrawl openapi` writes the document and tells when a file has drifted from it."""

import json

import pytest

from service.api.app import create_app


def test_the_document_is_written_to_standard_output(recrawl):
    ended = recrawl("openapi")
    assert ended.status == 0
    assert json.loads(ended.out) == create_app().openapi()


@pytest.mark.dear
def test_a_file_that_was_written_passes_the_check(recrawl, tmp_path):
    path = tmp_path / "new" / "openapi.json"
    assert recrawl("openapi", "--output", path).status == 0
    assert recrawl("openapi", "--check", path) == (0, "", "")


@pytest.mark.dear
def test_a_file_that_has_drifted_or_is_missing_fails_the_check(recrawl, tmp_path):
    path = tmp_path / "openapi.json"
    assert recrawl("openapi", "--check", path).status == 1
    recrawl("openapi", "--output", path)
    path.write_text(path.read_text().replace("3.1", "3.0", 1))
    ended = recrawl("openapi", "--check", path)
    assert ended.status == 1
    path.write_bytes(b"\xff\xfe")
    assert recrawl("openapi", "--check", path) == ended
    assert "recrawl openapi --output" in ended.err
