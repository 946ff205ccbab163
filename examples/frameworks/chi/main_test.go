package main

import (
	"testing"

	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
)

func TestContract(t *testing.T) { contract.Run(t, contract.Served(routes)) }
