"""A server of one model of mlx-lm, run by the interpreter of an environment that has it.

Nothing here imports the rest of this program, and nothing of this program imports it: it is started as `__main__`. It
speaks llama-server's HTTP interface on a Unix socket, as far as mlx-lm can do what is asked for; all else is refused by
name. What a model writes is handed on as it is, tool calls included; thoughts are told apart from answers.
"""
