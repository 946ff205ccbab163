// Package browsertest tests the page of package inspect in headless Chromium. It is a module of its own,
// because users of holdfast need no driver for a browser.
package browsertest
