package redis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const pingEvery = 3 * time.Second // to detect a dead connection

// Listen subscribes to the channel of the locker.
func (b *Backend) Listen(ctx context.Context, on func(backend.Notification)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.base, cancel)()
	client, closeClient := b.conn.subscriber(ctx)
	sub := b.subscribe(ctx, client)
	if sub == nil {
		return
	}
	messages := sub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(pingEvery))
	defer func() { b.hangUp(sub, messages, closeClient) }()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			b.receive(m, on)
		case <-ctx.Done():
			return
		}
	}
}

// subscribe returns a subscription, or nil if ctx ends first. go-redis dials before it returns. On
// a client made here the dial ends with ctx. On another client it ends by that client's own
// timeouts; then the subscription is closed as soon as it is made.
func (b *Backend) subscribe(ctx context.Context, client redis.UniversalClient) *redis.PubSub {
	channel := b.channels + b.o.Locker
	if b.conn.own {
		return client.Subscribe(ctx, channel)
	}
	made := make(chan *redis.PubSub)
	go func() { // ends with the dial
		sub := client.Subscribe(ctx, channel)
		select {
		case made <- sub:
		case <-ctx.Done():
			_ = sub.Close()
		}
	}()
	select {
	case sub := <-made:
		return sub
	case <-ctx.Done():
		return nil
	}
}

// hangUp closes a subscription. On a client that was not made here its Close may wait for a dial
// that hangs: then hangUp returns when the Backend is closed.
func (b *Backend) hangUp(sub *redis.PubSub, messages <-chan any, closeClient func() error) {
	closed := make(chan struct{})
	go func() { // ends with Close, which the client's own timeouts bound
		defer close(closed)
		_ = sub.Close()      // a subscription has nothing to lose
		for range messages { // until go-redis's own goroutine has noticed, at most 100 ms later
		}
		_ = closeClient()
	}()
	select {
	case <-closed:
	case <-b.base.Done():
	}
}

func (b *Backend) receive(m any, on func(backend.Notification)) {
	switch m := m.(type) {
	case *redis.Subscription:
		on(backend.Notification{Event: backend.EventSubscribed})
	case *redis.Message:
		if id, ok := strings.CutPrefix(m.Payload, "w"); ok {
			on(backend.Notification{Event: backend.EventTurn, Request: id})
			b.cleanups.hurry(id)
		} else if id, ok := strings.CutPrefix(m.Payload, "v"); ok {
			on(backend.Notification{Event: backend.EventRevoked, Request: id})
		} else if n, ok := decodeWake(m.Payload); ok {
			on(n)
		}
	}
}
