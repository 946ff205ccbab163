package redis_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/lockworld"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // these tests cause faults
	process.Main(m, manyWaiters, redistest.PoolProbes())
}

// world and the functions below are the scaffold that package lockcore uses too.
type world = lockworld.World

var (
	newWorld, realWorld        = lockworld.New, lockworld.Real
	lockerOn, inWrapper        = lockworld.LockerOn, lockworld.Wrap
	noWait, long               = lockworld.NoWait, lockworld.Long
	ok, takeOnce, eventually   = lockworld.OK, lockworld.TakeOnce, lockworld.Eventually
	storedNames, inspectRecord = lockworld.StoredNames, lockworld.InspectRecord
	faultKinds, struckBy       = lockworld.FaultKinds, lockworld.Struck
)
