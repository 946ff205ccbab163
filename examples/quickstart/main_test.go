package main

// The program of the README prints what the README says.
func Example() {
	main()
	// Output:
	// transferring
	// transfer: <nil>
	// charge: ran receipt 1001 <nil>
	// charge: replayed receipt 1001 <nil>
}
