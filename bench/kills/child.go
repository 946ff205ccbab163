package kills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Child is a process with asynq and asynqmw.Latest. text is its job. It returns when its standard input
// has ended.
func Child(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() { // ends with the parent, or when that closes it
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: j.Addr})
	if j.Role == producer {
		return produce(rdb, over)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // takeovers are expected
	if err := serve(rdb, j.Role); err != nil {
		return err
	}
	<-over
	return nil
}

type projection struct {
	Projection string `json:"projection"`
}

// produce triggers runs until over is closed.
func produce(rdb *redis.Client, over <-chan struct{}) error {
	client, ctx := asynq.NewClientFromRedisClient(rdb), context.Background()
	for i := 0; ; i++ {
		select {
		case <-over:
			return nil
		case <-time.After(rand.N(50 * time.Millisecond)):
		}
		key := strconv.Itoa(i/4 + rand.IntN(6))
		payload, err1 := json.Marshal(projection{key})
		err2 := rdb.HIncrBy(ctx, counts, key, 1).Err()
		_, err3 := client.EnqueueContext(ctx, asynq.NewTask("rebuild", payload))
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
	}
}

// worker kills itself when the event of its role occurs, but not earlier than at from.
type worker struct {
	rdb  *redis.Client
	role string
	from time.Time
}

func serve(rdb *redis.Client, role string) error {
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return err
	}
	life := rand.N(8 * time.Second)
	w := &worker{rdb, role, time.Now().Add(life)}
	newest := asynqmw.Latest(locks, asynqmw.ByJSON("projection", "/projection"), asynqmw.LatestOptions{})
	c := asynqmw.ConfigureParking(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(rdb)})
	if role == moment {
		time.AfterFunc(life, die)
	}
	return asynq.NewServerFromRedisClient(rdb, c).Start(newest(asynq.HandlerFunc(w.rebuild)))
}

func (w *worker) rebuild(ctx context.Context, t *asynq.Task) error {
	var p projection
	err := json.Unmarshal(t.Payload(), &p)
	if err == nil {
		err = w.tell(ctx, began, p.Projection, "-")
	}
	if err != nil {
		return err
	}
	seen, err := w.rdb.HGet(ctx, counts, p.Projection).Result()
	if err == nil {
		err = sleep(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond))
	}
	if err == nil {
		err = w.tell(ctx, ended, p.Projection, seen)
	}
	if err != nil {
		return errors.Join(err, w.tell(context.WithoutCancel(ctx), failed, p.Projection, "-"))
	}
	return nil
}

func (w *worker) tell(ctx context.Context, event, key, value string) error {
	err := w.rdb.RPush(ctx, journal, fmt.Sprint(os.Getpid(), " ", event, " ", key, " ", value)).Err()
	if err == nil && event == w.role && time.Now().After(w.from) {
		die()
	}
	return err
}

// die kills this process with SIGKILL.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	panic(err) // not reached, unless that fails
}
