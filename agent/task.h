/* Asyncio tasks: each has a stack of open spans of its own, and begins in what was the innermost span where it was created. */
#ifndef CIRRON_TASK_H
#define CIRRON_TASK_H

/* Before the interpreter is attached. */
void task_add_probes(void);

/* In the child of a fork: tasks of the parent that go on here begin anew. */
void task_forget(void);

/* The interpreter is gone. */
void task_interpreter_ends(void);

#endif
