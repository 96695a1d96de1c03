from resource import RUSAGE_SELF, getrusage

from graft.core.data_stack import with_room_for_frames


def callee(value):
    return value


def faults_below(depth, calls=200):
    """Return how many pages are mapped while a function is called at some depth of the stack."""
    if depth:
        return faults_below(depth - 1)
    before = getrusage(RUSAGE_SELF).ru_minflt
    for value in range(calls):
        callee(value)
    return getrusage(RUSAGE_SELF).ru_minflt - before


def test_no_depth_of_calls_maps_memory_at_each_call():
    deepest = with_room_for_frames(lambda: max(faults_below(depth) for depth in range(300)))
    deepest()
    assert deepest() < 100


def test_arguments_results_and_names_are_the_function_s_own():
    @with_room_for_frames
    def sum_of(first, *, second):
        """Add."""
        return first + second

    assert sum_of(1, second=2) == 3
    assert (sum_of.__name__, sum_of.__doc__) == ("sum_of", "Add.")
