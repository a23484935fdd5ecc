package main

import . "github.com/mmcloughlin/avo/build"

// endPast orders what was stored past the caches before what is stored later.
func endPast() {
	function("endPastAMD64", "()", "is EndPast.")
	SFENCE()
	RET()
}
