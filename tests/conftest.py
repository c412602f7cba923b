"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# No test measures time: on a busy machine examples may take long to make and to run.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("project")
