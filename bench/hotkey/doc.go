// Command hotkey measures the effect of a hot key on the workers of an asynq server. Tasks of a few
// hot accounts and of many others share one queue, and each account runs one task at a time.
//
//	go -C bench run ./hotkey -table marks             the default load, and the marks of parking: 8 min
//	go -C bench run ./hotkey -table holds             holds of 5 ms, 50 ms and 2 s, 1, 3 and 20 hot accounts of 1,000: 6 to 12 min
//	go -C bench run ./hotkey -table backlog           5,000 short tasks of further accounts behind the load: 2 min
//	go -C bench run ./hotkey -table soak -minutes 10  workers that are killed and servers that are paused: up to 3 min more
//	go -C bench run ./hotkey -policy wait -hot 3      one load, described by flags
//
// The program starts two redis-servers on free ports, one for asynq and one for the locks, and
// stops them at the end. It starts itself again for each worker process. The policies are none (no
// lock), wait (asynqmw.Exclusive with its default options) and park (the same with
// asynqmw.Parking).
//
// Worker processes report when a task is delivered, when its handler begins and when it ends, by
// the clock of the machine. From these events the program computes all times, and whether two
// handlers of an account ran at the same time. The lock commands are those that the worker
// processes wrote to their connections. The commands that scripts call are counted by the server,
// and shown separately.
//
// A woken task goes to the end of its queue. The backlog is enqueued behind the load, so that it is
// ahead of every woken task. A standing backlog is one in which each task that ends is replaced.
//
// The exit code is 1 if handlers of an account overlapped, a task was archived, or a retry was used
// up. It is also 1 if a task that ended was not completed in asynq. In the soak archived tasks and
// retries do not count by themselves: each task must complete, fencing tokens must grow, and gaps
// have a bound.
package main
