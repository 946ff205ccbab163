package guard_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/docprogram"
)

func TestDocProgram(t *testing.T) {
	if err := docprogram.Check("doc.go", "example_doc_test.go", 25); err != nil {
		t.Error(err)
	}
}
