package doctor_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quietLogger{}) // these tests cause the faults that go-redis would log
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

type quietLogger struct{}

func (quietLogger) Printf(context.Context, string, ...any) {}

// wrapper is a client of a type that is not one of go-redis.
type wrapper struct{ redis.UniversalClient }

var noWait = lockcore.Terms{Wait: lockcore.NoWait}
