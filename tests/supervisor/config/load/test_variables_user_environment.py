"""Which of our own variables a worker is told."""

from quarterdeck.config.load.variables import user_environment

PLACES = {
    "NVM_DIR": "/home/u/.nvm",
    "PYENV_ROOT": "/home/u/.pyenv",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "SSH_AUTH_SOCK": "/run/agent",
    "AWS_SHARED_CREDENTIALS_FILE": "/home/u/keys",
    "DISPLAY": ":0",
}
OTHERS = {
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "GH_TOKEN": "s3cret",
    "UV_INDEX_PASSWORD": "s3cret",
    "MY_NVM_DIR": "/x",
    "API_TOKEN": "s3cret",
    "HOME": "/home/u",
}


def test_a_worker_is_told_where_tools_and_granted_things_are() -> None:
    """A server would not start from nvm in an unusual place, or not find the agent that it was granted."""
    assert user_environment({**OTHERS, **PLACES}) == PLACES


def test_no_secret_of_the_users_is_told() -> None:
    """It would wait in the memory of every worker."""
    assert user_environment(OTHERS) == {}
