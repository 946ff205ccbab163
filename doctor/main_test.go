package doctor_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	logging.Disable() // these tests cause the faults that go-redis would log
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// wrapper is a client of a type that is not one of go-redis.
type wrapper struct{ redis.UniversalClient }

var noWait = lockcore.Terms{Wait: lockcore.NoWait}
