// DriverState is what became of the driver at the program's start.
typedef struct {
  int result;         // what cuInit answered, a CUresult
  char problem[256];  // why it was not asked, or nothing
} DriverState;

const DriverState* driverState(void);
