package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const pingEvery = 3 * time.Second // period of PINGs that detect a dead connection

// Listen subscribes to the channel of the Locker.
func (b *Backend) Listen(ctx context.Context, on func(backend.Notification)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.base, cancel)()
	client, closeClient := b.send.Subscriber(ctx)
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
// a client of conn.New the dial ends with ctx. On a client of the user only the timeouts of that
// client bound the dial. If such a dial ends after ctx, its subscription is closed.
func (b *Backend) subscribe(ctx context.Context, client redis.UniversalClient) *redis.PubSub {
	channel := b.wire.Channels + b.wire.Locker
	if b.send.Own {
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

// hangUp closes a subscription. On a client of the user, Close may wait for a dial that hangs. Then
// hangUp returns when the Backend is closed.
func (b *Backend) hangUp(sub *redis.PubSub, messages <-chan any, closeClient func() error) {
	closed := make(chan struct{})
	go func() { // ends with Close, which the timeouts of the client bound
		defer close(closed)
		_ = sub.Close()      // its error does not matter
		for range messages { // until the goroutine of go-redis has ended, at most 100 ms later
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
		n, ok := wire.DecodeNotification(m.Payload)
		if !ok {
			return
		}
		on(n)
		if n.Event == backend.EventTurn {
			b.cleanups.Hurry(n.Request)
		}
	}
}
