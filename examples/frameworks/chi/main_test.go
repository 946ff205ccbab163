package main

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestContract(t *testing.T) { contract.Run(t, contract.Served(routes)) }

// A compressor outside of Idempotent compresses first responses and replays.
func TestContractCompressed(t *testing.T) {
	contract.Run(t, contract.Served(func(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
		return middleware.Compress(5, "application/json", "text/*")(routes(locks, b, o))
	}))
}
