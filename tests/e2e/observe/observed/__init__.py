def top():
    return "top"
