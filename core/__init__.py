"""What a model is and how it is computed: import, operator table, graph passes, tensor IR, schedules."""
