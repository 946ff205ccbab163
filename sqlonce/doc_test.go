package sqlonce_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/docprogram"
)

// The Example is in the module that has a driver.
func TestDocProgram(t *testing.T) {
	if err := docprogram.Check("doc.go", "../proof/sqltest/example_doc_test.go", 40); err != nil {
		t.Error(err)
	}
}
