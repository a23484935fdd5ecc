package simd

const canPast = true

func endPastVector() { endPastAMD64() }
