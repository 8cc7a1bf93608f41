from agentlightning_rl.tasks import TaskSampler


def test_every_task_comes_once_an_epoch_in_a_new_order_each():
    tasks = [f"task {n}" for n in range(10)]
    drawn = TaskSampler(tasks, seed=1).draw(0, 30)
    epochs = [drawn[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(epoch) == tasks for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_restart_draws_what_an_unbroken_run_draws():
    tasks = list(range(7))
    unbroken = TaskSampler(tasks, seed=3)
    batches = [unbroken.draw(step * 4, 4) for step in range(6)]
    assert TaskSampler(tasks, seed=3).draw(20, 4) == batches[5]
    assert TaskSampler(tasks, seed=4).draw(0, 7) != batches[0] + batches[1][:3]


def test_more_tasks_a_step_than_there_are_draws_them_again():
    assert sorted(TaskSampler(["a", "b"], seed=0).draw(0, 6)) == ["a", "a", "a", "b", "b", "b"]
