"""Any server that speaks OpenAI's API as an engine: started by a command of the configuration, asked as it is."""
