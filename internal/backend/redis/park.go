package redis

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Park sends park.lua.
func (b *Backend) Park(ctx context.Context, r backend.ParkRequest) (backend.ParkReply, error) {
	reply, _, err := b.send.insist(ctx, b.send.Calls, b.wire.Park(&r))
	if err != nil {
		return backend.ParkReply{}, err
	}
	return wire.DecodePark(reply)
}

// Unpark sends unpark.lua.
func (b *Backend) Unpark(ctx context.Context, r backend.UnparkRequest) (backend.UnparkReply, error) {
	reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Unpark(&r))
	if err != nil {
		return backend.UnparkReply{}, err
	}
	return wire.DecodeUnpark(reply)
}

// Order sends trigger.lua.
func (b *Backend) Order(ctx context.Context, r backend.TriggerRequest) (backend.TriggerReply, error) {
	on := b.send.Calls
	if r.Op == backend.TriggerDone { // the key is held until it is recorded
		on = b.send.Ends
	}
	reply, _, err := b.send.insist(ctx, on, b.wire.Trigger(&r))
	if err != nil {
		return backend.TriggerReply{}, err
	}
	return wire.DecodeTrigger(r.Op, reply)
}

// CallParkingLocker sends call_parking_locker.lua.
func (b *Backend) CallParkingLocker(ctx context.Context, key *backend.Key) (int, error) {
	reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.CallParkingLocker(key))
	if err != nil {
		return 0, err
	}
	return wire.DecodeCallParkingLocker(reply)
}
