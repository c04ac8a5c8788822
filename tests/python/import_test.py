"""importing pliant loads neither torch nor numpy, and what it exports is there."""


def test_neither_torch_nor_numpy_is_loaded_before_an_array_is_asked_for(run_python):
    done = run_python(
        """
        import os, sys
        import pliant
        config = pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"])
        plan = pliant.plan(config, 3)
        batches = pliant.Batches(config, plan, list(range(3, 60)))
        batch = next(batches)
        sampler = pliant.PackedBatchSampler(config, list(range(3, 60)), 0, 3)
        assert [list(micro) for micro in sampler]
        for name in ("numpy", "torch"):
            assert name not in sys.modules, name
        batch.ids
        assert "numpy" in sys.modules and "torch" not in sys.modules
        """
    )
    assert done.stderr == ""


def test_all_names_are_there(pliant):
    for name in pliant.__all__:
        assert getattr(pliant, name) is not None


def test_the_version_is_that_of_the_build(pliant):
    assert pliant.__version__.count(".") == 2
