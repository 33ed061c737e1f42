"""One thread where bits count, and several computations side by side."""

import threading

import pytest
import threadpoolctl
import torch

from vitlab import threads


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> int:
    return max(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")


def test_one_thread_is_given_back_after_an_exception():
    with pytest.raises(ArithmeticError), threads.one_thread():
        assert torch.get_num_threads() == 1 and blas_threads() == 1
        raise ArithmeticError
    assert torch.get_num_threads() == 2


def test_two_items_are_worked_on_at_the_same_time_each_with_one_thread_of_blas():
    met = threading.Barrier(2, timeout=20)  # breaks where one waits for the other to end

    def work(item: int) -> tuple[int, int, int]:
        met.wait()
        return item, threading.get_ident(), blas_threads()

    before = blas_threads()
    (first, mine, pools), (second, other, _) = threads.mapped(work, [7, 8])
    assert (first, second, pools) == (7, 8, 1) and mine != other
    assert blas_threads() == before


@pytest.mark.parametrize(("n_threads", "n_items"), [(1, 5), (2, 1), (2, 0)])
def test_nothing_changes_where_there_is_one_thread_or_one_item(n_threads, n_items):
    torch.set_num_threads(n_threads)
    here, pools = threading.get_ident(), blas_threads()
    found = threads.mapped(lambda item: (item, threading.get_ident(), blas_threads()), range(n_items))
    assert found == [(item, here, pools) for item in range(n_items)]


def test_the_first_exception_is_raised_and_the_limit_lifted():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        threads.mapped(lambda item: 1 / item, [1, 0, 2])
    assert blas_threads() == before
