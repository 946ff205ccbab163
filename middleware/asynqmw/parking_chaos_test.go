package asynqmw_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Four processes park the tasks of three hot keys. For 40 s processes are killed and cut off from
// the queue or from the locks, an operator deletes, archives and runs parked tasks, and entries of
// parked tasks are deleted. Afterwards each task that the operator has left has run, one at a time
// for a key. A task runs again only if asynq itself delivers it again, because its worker was killed
// or cut off.
// Shows: A7
func TestParkingChaos(t *testing.T) {
	testlevel.Campaign(t)
	c := newParkingChaos(t)
	for range 4 {
		c.units = append(c.units, c.start())
	}
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		for range 1 + rand.N(25) { // the first task makes the queue
			c.enqueue()
		}
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		c.act()
	}
	for _, u := range c.units {
		u.queue.Heal()
		u.locks.Heal()
	}
	calm := time.Now()
	for left := 1; left > 0 && time.Since(calm) < 5*time.Minute; time.Sleep(200 * time.Millisecond) {
		info, err := c.inspect.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		left = info.Pending + info.Active + info.Retry + info.Scheduled
	}
	t.Logf("%d tasks, %v, drained in %v", c.tasks, c.acts, time.Since(calm).Round(time.Second))
	for _, u := range c.units {
		u.Tell("")
		u.Close()
		<-u.Ended
	}
	c.judge()
}

// unit is a process behind two relays.
type unit struct {
	*childProcess
	queue, locks *redistest.Relay
}

type parkingChaos struct {
	*world
	server *redistest.Server
	units  []*unit
	acts   map[string]int
	tasks  int
	gone   map[string]bool // removed by the operator
	killed map[int]bool
}

func newParkingChaos(t *testing.T) *parkingChaos {
	t.Helper()
	server := redistest.Real(t)
	return &parkingChaos{
		world: newWorld(t, server.Client(t)), server: server, acts: map[string]int{}, gone: map[string]bool{}, killed: map[int]bool{},
	}
}

func (c *parkingChaos) start() *unit {
	u := &unit{queue: redistest.Proxy(c.T, c.server.Addr()), locks: redistest.Proxy(c.T, c.server.Addr())}
	at := func(r *redistest.Relay) string { return net.JoinHostPort("127.0.0.1", r.Port()) }
	terms := lockcore.Terms{Lease: 2 * time.Second}
	u.childProcess = c.world.start(order{Asynq: at(u.queue), Locks: at(u.locks), Log: c.server.Addr(), Parks: "default", Workers: 6, Terms: terms})
	go func() {
		for range u.said {
		}
	}()
	u.serve()
	return u
}

func (c *parkingChaos) enqueue() {
	opts := []asynq.Option{asynq.TaskID(fmt.Sprint(c.tasks)), asynq.MaxRetry(1000)}
	if c.tasks++; c.tasks%2 == 0 {
		opts = append(opts, asynq.Retention(time.Hour))
	}
	if _, err := c.client.Enqueue(asynq.NewTask("hot", fmt.Append(nil, rand.N(3))), opts...); err != nil {
		c.Fatal(err)
	}
}

// act makes a fault, or lets the operator do something with a parked task.
func (c *parkingChaos) act() {
	u, entries := c.units[rand.N(len(c.units))], fmt.Sprintf("holdfast:2:x:{test:%d}", rand.N(3))
	retries, err := c.inspect.ListRetryTasks("default", asynq.PageSize(500))
	if err != nil {
		c.Fatal(err)
	}
	var task *asynq.TaskInfo
	for _, i := range rand.Perm(len(retries)) {
		if task = retries[i]; strings.HasPrefix(task.LastErr, "asynqmw: parked on") {
			break
		}
	}
	what := []string{"kill", "cut off", "cut off", "heal", "delete", "archive", "run", "run", "entries", "marks", "nothing"}[rand.N(11)]
	switch what {
	case "kill":
		c.killed[u.PID()] = true
		u.Kill()
		*u = *c.start()
	case "cut off":
		[]*redistest.Relay{u.queue, u.locks}[rand.N(2)].Silence()
	case "heal":
		for _, u := range c.units {
			u.queue.Heal()
			u.locks.Heal()
		}
	case "entries":
		c.rdb.Del(c.Context(), entries+":p")
	case "marks":
		c.rdb.Del(c.Context(), entries+":w")
	}
	if operate := map[string]func(queue, id string) error{
		"delete": c.inspect.DeleteTask, "archive": c.inspect.ArchiveTask, "run": c.inspect.RunTask,
	}[what]; operate != nil {
		if task == nil || operate("default", task.ID) != nil { // it has come back meanwhile
			return
		}
		c.gone[task.ID] = c.gone[task.ID] || what != "run"
	}
	c.acts[what]++
}

// judge reads the log of all processes.
func (c *parkingChaos) judge() {
	runs, why, inside := map[string]int{}, map[string]string{}, map[string]line{}
	again := 0
	for _, text := range c.rdb.LRange(c.Context(), "log", 0, -1).Val() {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			c.Fatal(err)
		}
		switch l.What {
		default: // a delivery, with the last error of the task
			why[fmt.Sprint(l.Process, " ", l.Task)] = l.What
		case begins:
			if other, ok := inside[l.Key]; ok && !c.killed[other.Process] {
				c.Errorf("task %s began inside of task %s of key %s", l.Task, other.Task, l.Key)
			}
			inside[l.Key] = l
			if runs[l.Task] > 0 {
				again++
				if cause := why[fmt.Sprint(l.Process, " ", l.Task)]; cause != asynq.ErrLeaseExpired.Error() {
					c.Errorf("task %s ran again; its last error was %q", l.Task, cause)
				}
			}
		case ended:
			runs[l.Task]++
			delete(inside, l.Key)
		}
	}
	for i := range c.tasks {
		if id := fmt.Sprint(i); runs[id] == 0 && !c.gone[id] {
			c.Errorf("task %s never ran", id)
		}
	}
	c.Logf("%d of %d tasks ran again, by asynq", again, c.tasks)
}
