"""What a secret looks like: what well-known services' tokens begin with."""

import pytest

from quarterdeck_protocol.secrets import secrets_in

_BODY = "abcdefgh" * 4
"""Letters that look like a word: only what stands before them gives a token away."""

TOKENS = [
    *(f"gh{kind}_{_BODY[:8]}" for kind in "opsur"),
    *(f"{name}_v1_{_BODY[:8]}" for name in ("doo", "dop", "dor")),
    *(f"{kind}_{way}_{_BODY[:8]}" for kind in ("sk", "pk", "rk") for way in ("live", "test", "prod")),
    *(f"{kind}{_BODY[:8].upper()}" for kind in ("AKIA", "ASIA", "AGPA", "AIDA", "AROA", "ANPA", "ANVA", "APKA")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("shpat", "shpss", "shpca", "shppa", "sntrys", "sntryu")),
    *(f"{kind}.{_BODY[:8]}" for kind in ("hvs", "hvb", "hvr")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("github_pat", "npm", "hf", "ntn", "lin_api", "lin_oauth", "gsk", "glsa")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("whsec", "rubygems")),
    *(f"{kind}-{_BODY[:8]}" for kind in ("sk", "xoxb", "xoxp", "xapp", "GOCSPX", "xai", "pplx", "tvly", "nvapi")),
    *(f"{kind}-{_BODY[:8]}" for kind in ("sq0atp", "sq0csp", "NRAK", "PMAK", "tskey", "AGE-SECRET-KEY")),
    *(f"{kind}{_BODY[:8]}" for kind in ("figd_", "dckr_pat_", "ATATT3", "ATCTT3", "ya29.", "ops_eyJ", "eyJ")),
    *(f"{kind}{_BODY[:16]}" for kind in ("secret_", "phc_", "phx_", "r8_", "AIza", "1//0", "pypi-")),
    *(f"{kind}-{_BODY[:10]}" for kind in ("glpat", "gldt", "glrt")),
    f"SG.{_BODY[:8]}.{_BODY[:8]}",
    f"key-{'abcdef' * 5}ab",
    f"EAA{_BODY[:24]}",
    f"12345678:AA{_BODY[:30]}",
    f"M{_BODY[:23]}.{_BODY[:6]}.{_BODY[:27]}",
]


@pytest.mark.parametrize("token", TOKENS)
def test_the_token_of_a_service_is_known_by_its_begin(token: str) -> None:
    """One whose rest looks like words would stand in the ledger for good."""
    assert secrets_in(f"use {token} here") == [token]
    assert secrets_in(f"use {token[len(token) // 2 :]} here") == []
