"""The application: resolve, load, launch, show, pull, plan, restore and reload, as typed results without HTTP."""
