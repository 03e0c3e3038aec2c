"""What servers told: kept within bounds, by test, and waited for."""

from quarterdeck_pytest.client.notifications import KEPT, KEPT_BYTES, LOG, Hearing, Notification, Told


def test_a_test_sees_what_came_since_it_began() -> None:
    """What a server told the test before would be asserted of this one."""
    told = Told()
    told.put("notifications/x", b'{"n":1}')
    hearing = Hearing(told, told.count)
    told.put(LOG, b'{"level":"info","data":"y"}')
    told.put("notifications/z", b"")
    assert hearing.notifications == [
        Notification(LOG, {"level": "info", "data": "y"}),
        Notification("notifications/z", {}),
    ]
    assert hearing.log_messages == [{"level": "info", "data": "y"}]
    assert len(Hearing(told).notifications) == 3


def test_each_wait_gives_another_whether_it_came_before_or_comes_later() -> None:
    """A test would be given the same notification twice, or miss one that was faster than it."""
    told = Told()
    hearing = Hearing(told)

    def put(number: int) -> None:
        told.put("notifications/x", b'{"n":%d}' % number)

    put(1)
    put(2)
    numbers = []
    for _ in range(2):
        future, taken = hearing.next("notifications/x")
        numbers.append(taken(future.result(0)).params["n"])
    future, taken = hearing.next("notifications/x")
    told.put("notifications/other", b"")
    assert not future.done()
    put(3)
    numbers.append(taken(future.result(0)).params["n"])
    assert numbers == [1, 2, 3]


def test_a_wait_that_is_given_up_takes_nothing() -> None:
    """The next wait would never end."""
    told = Told()
    hearing = Hearing(told)
    future, _ = hearing.next("notifications/x")
    future.cancel()
    told.put("notifications/x", b"")
    again, taken = hearing.next("notifications/x")
    assert taken(again.result(0)).method == "notifications/x"
    assert hearing.missing("notifications/y", 2) == ("no notifications/y came within 2 s; what came: notifications/x")


def test_what_is_kept_is_bounded_in_number_and_bytes() -> None:
    """A server that floods would fill the memory of its tests."""
    told = Told()
    for number in range(KEPT + 5):
        told.put("notifications/x", b'{"n":%d}' % number)
    kept = Hearing(told).notifications
    assert (len(kept), kept[0].params["n"], told.count) == (KEPT, 5, KEPT + 5)
    told.put("notifications/x", b'{"text":"%s"}' % (b"x" * (KEPT_BYTES - 20)), lost=7)
    assert len(Hearing(told).notifications) < KEPT
    assert told.count == KEPT + 13
