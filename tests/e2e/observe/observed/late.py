LATE = True
