def never():
    pass


raise ValueError("this module does not load")
