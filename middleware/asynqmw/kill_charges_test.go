package asynqmw_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

const kills = 100 // of workers, for each mode and order

// charges are payments of one account. Each task has the ID of a payment as its payload.
type charges struct {
	Queue   string // also the ID of the account
	Mode    guard.Mode
	Outside bool // Once is outside of Exclusive: the order that the documentation calls a mistake
}

// guarded returns h with the guards of a worker.
func (c *charges) guarded(locks *lockcore.Locker, terms lockcore.Terms, h asynq.Handler) asynq.Handler {
	account := asynqmw.Exclusive(locks, func(ctx context.Context, _ *asynq.Task) (guard.Key, error) {
		queue, _ := asynq.GetQueueName(ctx)
		return guard.Key{Class: "account", ID: queue}, nil
	}, asynqmw.ExclusiveOptions{Terms: terms})
	payment := asynqmw.Once(locks, byPayload, asynqmw.OnceOptions{Mode: c.Mode, Terms: lockcore.Terms{Lease: terms.Lease}})
	if c.Outside {
		return payment(account(h))
	}
	return account(payment(h))
}

// charge notes that the charge has begun, and has its effect. A victim is slow, so that some are
// killed between the two.
func (c *charges) charge(ctx context.Context, rdb *redis.Client, t *asynq.Task, victim bool) error {
	payment := string(t.Payload())
	if victim {
		if err := rdb.SAdd(ctx, "begun", payment).Err(); err != nil {
			return err
		}
		time.Sleep(rand.N(30 * time.Millisecond))
	}
	return rdb.Incr(ctx, "effect:"+payment).Err()
}

// 100 workers are killed with SIGKILL for each mode, each with one charge that runs and four tasks
// that wait for its account. Only charges that had begun are abandoned. With
// AtMostOnce no payment is charged twice. All payments that had not begun are charged once.
//
// The control has Once outside of Exclusive. It abandons payments that had not begun, and with
// AtMostOnce refuses them.
// Shows: A13
func TestKilledCharges(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	for name, mode := range modes {
		for _, outside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Once outside %v", name, outside), func(t *testing.T) {
				w := newWorld(t, redistest.Real(t).Client(t))
				c := &campaign{world: w, charges: charges{Mode: mode, Outside: outside}}
				c.kill(kills)
				c.recover()
				t.Logf("%d kills, %d tasks: %d charges had begun; abandoned: %d that had begun, %d that had not; then completed %d, refused %d, of them %d that had not begun; charged twice: %d",
					kills, len(c.tasks), len(c.begun), c.abandonedBegun, c.abandonedWaiting, c.completed, c.refused, c.refusedWaiting, c.twice)
				if outside {
					if c.abandonedWaiting == 0 || mode == guard.AtMostOnce && c.refusedWaiting == 0 {
						t.Error("the control does not show the fault, so this test would not find it")
					}
					return
				}
				if len(c.begun) != kills || c.abandonedBegun != kills || c.abandonedWaiting > 0 || c.refusedWaiting > 0 {
					t.Error("a task that had not begun was abandoned or refused")
				}
				if mode == guard.AtMostOnce && c.twice > 0 {
					t.Error("an effect happened twice with AtMostOnce")
				}
			})
		}
	}
}

// campaign kills workers, and counts what happens to their tasks.
type campaign struct {
	*world
	charges

	tasks                            []*asynq.TaskInfo
	queues                           map[string]int
	begun                            map[string]bool
	abandonedBegun, abandonedWaiting int // once keys after the kill
	completed, refused               int // tasks at the end
	refusedWaiting, twice            int
}

// kill kills n workers, one after the other.
func (c *campaign) kill(n int) {
	c.Helper()
	ctx, addr := c.Context(), c.rdb.Options().Addr
	c.queues = map[string]int{}
	for i := range n {
		o := c.charges
		o.Queue = fmt.Sprint("account-", i)
		c.queues[o.Queue] = 1
		victim := c.start(order{Asynq: addr, Locks: addr, Workers: 5, Terms: lockcore.Terms{Lease: time.Second, Wait: time.Minute}, Charges: &o})
		for k := range 5 {
			c.tasks = append(c.tasks, c.enqueue("charge", fmt.Sprintf("%d-%d", i, k), asynq.Queue(o.Queue), asynq.MaxRetry(3)))
		}
		victim.serve()
		if !c.eventually(func() bool {
			delivered, _ := c.rdb.Get(ctx, "delivered:"+o.Queue).Int()
			begun, _ := c.rdb.SCard(ctx, "begun").Result()
			return delivered == 5 && int(begun) == i+1
		}) {
			c.Fatal("the victim does not charge")
		}
		time.Sleep(rand.N(40 * time.Millisecond))
		victim.Kill()
		// asynq returns tasks when their lease has been over for 30 s: let that be now.
		leases := "asynq:{" + o.Queue + "}:lease"
		for _, id := range c.rdb.ZRange(ctx, leases, 0, -1).Val() {
			c.rdb.ZAdd(ctx, leases, redis.Z{Score: 1, Member: id})
		}
	}
	c.begun = map[string]bool{}
	for _, payment := range c.rdb.SMembers(ctx, "begun").Val() {
		c.begun[payment] = true
	}
	for _, task := range c.tasks {
		var held lockcore.Holding
		if !c.eventually(func() (over bool) {
			var err error
			held, err = c.locks.Inspect(ctx, event.KindOnce, "charge/test:"+string(task.Payload))
			return err == nil && held.State != lockcore.StateHeld
		}) {
			c.Fatalf("payment %s is still held", task.Payload)
		}
		switch {
		case held.State != lockcore.StateAbandoned:
		case c.begun[string(task.Payload)]:
			c.abandonedBegun++
		default:
			c.abandonedWaiting++
		}
	}
}

// recover runs a worker that gets the tasks of the victims, until each task has ended.
func (c *campaign) recover() {
	c.Helper()
	cfg := quick()
	cfg.Queues = c.queues
	srv := c.serve(asynqmw.Configure(cfg), c.guarded(c.locks, lockcore.Terms{Lease: time.Second, Wait: time.Minute}, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		return c.charge(context.WithoutCancel(ctx), c.rdb, t, false)
	})))
	for _, task := range c.tasks {
		payment := string(task.Payload)
		info := c.until(task, func(i *asynq.TaskInfo) bool {
			return i.State == asynq.TaskStateCompleted || i.State == asynq.TaskStateArchived
		})
		effects, err := c.rdb.Get(c.Context(), "effect:"+payment).Int()
		if err != nil && err != redis.Nil { //nolint:errorlint // as go-redis documents it
			c.Fatal(err)
		}
		if effects > 1 {
			c.twice++
		}
		switch {
		case info.State == asynq.TaskStateCompleted:
			c.completed++
			if effects == 0 || effects > 1 && !c.begun[payment] {
				c.Errorf("payment %s is completed with %d effects, begun %v", payment, effects, c.begun[payment])
			}
		case c.Mode == guard.AtMostOnce && strings.Contains(info.LastErr, "abandoned"):
			c.refused++
			if !c.begun[payment] {
				c.refusedWaiting++
			}
		default:
			c.Errorf("payment %s is archived: %s", payment, info.LastErr)
		}
	}
	srv.Shutdown()
}
