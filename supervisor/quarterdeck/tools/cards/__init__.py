"""The seven app cards: tools of the deck's own, which only the `all` profile has."""

from quarterdeck.tools.deck.contract import CapabilityCard


def app_novel_cards() -> list[CapabilityCard]:
    """Their catalogue rows, in the catalogue's order."""
    from .bg_process import daemon_card
    from .memory import memory_card
    from .plan import enter_plan_mode_card, exit_plan_mode_card
    from .saas import saas_card
    from .task import task_card
    from .todo import todo_card

    return [
        todo_card(),
        daemon_card(),
        task_card(),
        saas_card(),
        memory_card(),
        enter_plan_mode_card(),
        exit_plan_mode_card(),
    ]
