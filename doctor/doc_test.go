package doctor_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/docprogram"
)

// The program in the package documentation is Example, which is compiled.
func TestDocProgram(t *testing.T) {
	t.Parallel()
	if err := docprogram.Check("doc.go", "example_test.go", 25); err != nil {
		t.Error(err)
	}
}
