"""What stands between a plan and its application: rules, and who may pass them."""
