"""The application: resolve, launch, load, pull, plan, restore and reload, as typed results without HTTP."""
